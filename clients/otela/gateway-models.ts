import * as z from 'zod';
import { UsageError } from '../../shared/command-line/index.ts';
import { type GatewayAccess, readResource } from './gateway-access.ts';

export interface GatewayModel {
  id: string;
  /** Tokens; undefined if no node reports it. */
  context: number | undefined;
  /** Undefined for a gateway that reports only models that are ready. */
  state: string | undefined;
  /** True if the model reads pictures. */
  seesImages: boolean;
}

/** Characters of a model's name that a gateway may report. Longer names are refused at the gateway, too. */
const ID_MAX_CHARS = 256;

const listSchema = z.object({
  data: z.array(
    z.object({
      id: z.string().min(1).max(ID_MAX_CHARS),
      state: z.string().max(32).optional(),
      context_length: z.number().int().positive().optional(),
      max_model_len: z.number().int().positive().optional(),
      architecture: z.object({ input_modalities: z.array(z.string()).optional() }).optional(),
    }),
  ),
});

/** The models that this key may use. `all`: also models that are loading or start on request. */
export async function gatewayModels(access: GatewayAccess, all = false): Promise<GatewayModel[]> {
  const list = listSchema.safeParse(await readResource(access, all ? '/v1/models?state=all' : '/v1/models'));
  if (!list.success) throw new UsageError(`${access.gateway} is not a gateway: its response is not a list of models`);
  return list.data.data.map(({ id, state, context_length, max_model_len, architecture }) => ({
    id,
    state,
    context: context_length ?? max_model_len,
    seesImages: architecture?.input_modalities?.includes('image') ?? false,
  }));
}
