/** A directory of deployment templates for `--accept-deployments`, and the template of the mock engine. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ENGINE_MAIN } from './agent.ts';
import { temporaryDirectory } from './processes.ts';
import { NODE } from './where.ts';

export const MOCK_TEMPLATE = {
  about: 'The stand-in engine.',
  argv: [NODE, ENGINE_MAIN, '--port', '{{port}}', '--model', '{{model}}', '--rate', '{{rate}}'],
  parameters: {
    model: { type: 'string', allow: ['stand-in/*', 'meta-llama/Llama-3.1-8B-Instruct'] },
    rate: { type: 'integer', min: 1, max: 1000, default: 1000 },
  },
};

export async function writeTemplates(files: Record<string, unknown>): Promise<string> {
  const directory = join(await temporaryDirectory('otela-templates'), 'templates');
  await mkdir(directory, { mode: 0o755 });
  for (const [name, content] of Object.entries(files))
    await writeFile(join(directory, `${name}.json`), JSON.stringify(content), { mode: 0o644 });
  return directory;
}
