/** `otela secrets`: secrets that the caller's functions get as environment variables. */
import { text } from 'node:stream/consumers';
import * as z from 'zod';
import { SECRET_MAX_CHARS, SECRET_NAME, SECRET_NAME_RULE } from '../../shared/batch/function-secret.ts';
import { UsageError } from '../../shared/command-line/index.ts';
import type { Output } from '../../shared/terminal/command-output.ts';
import { printable } from '../../shared/terminal/printable.ts';
import { type GatewayAccess, readResource, sendResource } from './gateway-access.ts';

const listSchema = z.object({ data: z.array(z.object({ name: z.string(), created_at: z.number() })) });

export async function listSecrets(access: GatewayAccess, json: boolean, out: Output): Promise<void> {
  const answer = await readResource(access, '/v1/otela/secrets');
  if (json) return out.print(JSON.stringify(answer));
  const { data } = listSchema.parse(answer);
  if (data.length === 0) return out.print('No secrets are stored.');
  for (const { name, created_at: at } of data)
    out.print(printable(`${name}  stored ${new Date(at * 1_000).toISOString().slice(0, 10)}`));
}

/**
 * The value comes from stdin: arguments of a program are visible to all users of the machine.
 * @throws UsageError
 */
export async function setSecret(access: GatewayAccess, name: string | undefined, out: Output): Promise<void> {
  const checked = nameOf(name);
  if (process.stdin.isTTY) out.complain(`Type the value of ${checked}, Enter, and Ctrl-D.`);
  const value = (await text(process.stdin)).trim();
  if (value === '' || value.length > SECRET_MAX_CHARS || /[\0\r\n]/.test(value))
    throw new UsageError(`the value must be one line of at most ${SECRET_MAX_CHARS} characters on stdin`);
  await sendResource(access, `/v1/otela/secrets/${checked}`, JSON.stringify({ value }), 'PUT');
  out.print(`${checked} is stored. Functions get it that declare secrets=["${checked}"].`);
}

export async function deleteSecret(access: GatewayAccess, name: string | undefined, out: Output): Promise<void> {
  const checked = nameOf(name);
  await sendResource(access, `/v1/otela/secrets/${checked}`, undefined, 'DELETE');
  out.print(`${checked} is deleted. Processes that have it keep it until they end, after 10 idle minutes.`);
}

/** @throws UsageError */
function nameOf(name: string | undefined): string {
  if (name === undefined) throw new UsageError('the name of the secret is missing, for example HF_TOKEN');
  if (!SECRET_NAME.test(name)) throw new UsageError(`"${name}": the name ${SECRET_NAME_RULE}`);
  return name;
}
