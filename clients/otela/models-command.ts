import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import type { GatewayAccess } from './gateway-access.ts';
import { gatewayModels } from './gateway-models.ts';

/** `otela models`: one line per model. */
export async function modelsCommand(access: GatewayAccess, json: boolean, out: Output): Promise<void> {
  const models = await gatewayModels(access, true);
  if (json) {
    const listed = models.map(({ id, state, context }) => ({ id, state, context_length: context ?? null }));
    return out.print(JSON.stringify(listed));
  }
  if (models.length === 0) out.complain('otela: this key may use no model that is served now');
  for (const { id, state, context } of models) {
    const facts = [state, context === undefined ? undefined : `${context} tokens`].filter((one) => one !== undefined);
    out.print(printable([id, ...facts].join('  ')));
  }
}
