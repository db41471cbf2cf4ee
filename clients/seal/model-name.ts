/** Replaces an alias in a request by the model's canonical name. */
import { EditedBody, modelNameEdit } from '../../shared/openai/body-edits.ts';
import { scanJson } from '../../shared/openai/scan-json-body.ts';
import { concatBytes } from '../../shared/seal/portable-bytes.ts';
import { SealClientError } from './seal-client-error.ts';
import type { ClearRequest } from './seal-request.ts';

/** @param believes true if the caller allows aliases @throws SealClientError alias, not_sealable; nothing was sent */
export function withModelName(clear: ClearRequest, model: string, believes: boolean): ClearRequest {
  if (model === clear.model) return clear;
  const says = `The gateway claims, without a signature, that '${clear.model}' is an alias of '${model}'`;
  if (!believes)
    throw new SealClientError('alias', `${says}: name the model itself, or allow aliases. Nothing was sent.`);
  const { model: at } = scanJson(clear.body);
  if (at === undefined)
    throw new SealClientError('not_sealable', `${says}; the body has no member "model" that can be replaced.`);
  const edited = new EditedBody([modelNameEdit(at, model)]);
  return { ...clear, model, body: concatBytes(...edited.push(clear.body), ...edited.end()) };
}
