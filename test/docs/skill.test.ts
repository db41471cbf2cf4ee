/** The skill for coding agents names only commands that exist. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import * as z from 'zod';
import { OTELA_PROGRAM } from '../../clients/otela/main.ts';
import { UP_COMMAND } from '../../up/cli/up-command.ts';
import { ROOT } from '../support/where.ts';

/** Limits of the format (agentskills.io). */
const headSchema = z.strictObject({ name: z.literal('opentela'), description: z.string().min(1).max(1024) });

it('the skill has a valid head, and its commands and flags exist', () => {
  const [, head = '', body = ''] = readFileSync(join(ROOT, 'clients/skill/opentela/SKILL.md'), 'utf8').split(/^---$/m);
  headSchema.parse(parse(head));
  const commands = [...body.matchAll(/\botela ([a-z]+)/g)].map(([, name = '']) => name);
  expect(commands.length).toBeGreaterThan(8);
  for (const name of commands) expect(Object.keys(OTELA_PROGRAM.commands)).toContain(name);
  for (const [, flag = ''] of body.matchAll(/otela up .* --([a-z-]+)/g))
    expect(Object.keys(UP_COMMAND.flags)).toContain(flag);
});
