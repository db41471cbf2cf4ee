import { type CheckedInput, InputCheck } from '../../shared/batch/batch-input-check.ts';
import type { BatchError } from '../../shared/batch/batch-line.ts';
import { mayUseModel } from '../accounts/account.ts';
import { readGatewaySettings } from '../accounts/gateway-settings.ts';
import { hasAccess, isRetired } from '../accounts/model-access.ts';
import type { Env } from '../env.ts';
import { storeOf } from '../files/store-access.ts';
import type { BatchFunction, BatchSpec } from './batch-spec.ts';
import { NO_INPUT } from './error-messages.ts';
import { functionOf } from './find-function.ts';

/** Result of the input check: errors with which the batch fails, or lines that may be leased. */
type CheckOutcome =
  | { errors: BatchError[]; model: string | null }
  | { checked: CheckedInput; made: BatchFunction | undefined };

/** Reads the input once, as a stream. @throws FileStoreError; ApiError 503 if the account database is unavailable */
export async function checkInput(env: Env, spec: BatchSpec, nowMs: number): Promise<CheckOutcome> {
  const { inputExists, inputFileId, inputBytes } = spec;
  const whole = inputBytes === undefined ? undefined : { offset: 0, length: inputBytes };
  const content = inputExists ? await storeOf(env).read(inputFileId, whole) : undefined;
  if (content === undefined) return { errors: [NO_INPUT], model: null };
  const { account } = spec;
  const settings = await readGatewaySettings(env, nowMs);
  const check = new InputCheck({
    endpoint: spec.endpoint,
    after: spec.after?.length ?? 0,
    allowsModel: (model) =>
      mayUseModel(account, model) && hasAccess(settings, account, model) && !isRetired(settings, model, nowMs),
  });
  for await (const piece of content) check.push(piece);
  const checked = check.end();
  const { errors, model = null } = checked;
  if (errors.length > 0) return { errors, model };
  const made = await functionOf(env, spec, checked.model, checked.files);
  return made !== undefined && 'message' in made ? { errors: [made], model } : { checked, made };
}
