/** The files of deploy/ that a cluster's administrators copy: Open OnDemand, EasyBuild, Spack and Lmod. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import * as z from 'zod';
import manifest from '../../package.json' with { type: 'json' };
import { which } from '../support/abilities.ts';
import { ROOT } from '../support/where.ts';

const ONDEMAND = join(ROOT, 'deploy/open-ondemand');
const GATEWAY = 'https://gw.example.org';
const RUBY = which('ruby');
const LUA = which('luac5.3') ?? which('luac');
const read = (...path: string[]) => readFileSync(join(ROOT, ...path), 'utf8');

/** Renders a file as Open OnDemand does. `context` and further variables are as in its documentation. */
function render(name: string, variables: Record<string, unknown>, env: Record<string, string> = {}) {
  const script = `require 'erb'; require 'json'; require 'ostruct'
    given = JSON.parse(ENV.fetch('GIVEN'))
    scope = binding
    given.each { |name, value| scope.local_variable_set(name, value) }
    scope.local_variable_set('context', OpenStruct.new(given))
    print ERB.new(File.read(ARGV[0]), trim_mode: '-').result(scope)`;
  const site = { OTELA_CLUSTER: 'alps', OTELA_GATEWAY: GATEWAY, ...env };
  const result = spawnSync(RUBY ?? 'ruby', ['-e', script, join(ONDEMAND, name)], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, GIVEN: JSON.stringify(variables), ...site },
  });
  return { text: result.stdout, failed: result.status !== 0 };
}

const bash = (input: string) => spawnSync('bash', ['-s'], { input, encoding: 'utf8', env: { PATH: process.env.PATH } });

describe.skipIf(RUBY === undefined)(`the Open OnDemand app${RUBY === undefined ? ' (no ruby)' : ''}`, () => {
  const formSchema = z.object({
    cluster: z.string(),
    form: z.array(z.string()),
    attributes: z.record(z.string(), z.looseObject({ options: z.array(z.string()).optional() })),
  });

  it('has a form for any model, or for the models of the site', () => {
    const any = formSchema.parse(parse(render('form.yml.erb', {}).text));
    expect(any.cluster).toBe('alps');
    expect(any.attributes.model).toMatchObject({ widget: 'text_field', required: true });
    const some = formSchema.parse(parse(render('form.yml.erb', {}, { OTELA_MODELS: 'org/a org/b' }).text));
    expect(some.attributes.model?.options).toEqual(['org/a', 'org/b']);
    expect(any.form).toEqual(expect.arrayContaining(Object.keys(any.attributes)));
  });

  it('submits a job with the GPUs of the form, and with nothing else that was typed', () => {
    const submit = z.object({ script: z.object({ native: z.array(z.string()) }) });
    const { script } = submit.parse(parse(render('submit.yml.erb', { gpus: '4' }).text));
    expect(script.native).toEqual(['--nodes=1', '--gpus-per-node=4']);
    expect(render('submit.yml.erb', { gpus: '4"\n    - "--uid=0' }).failed).toBe(true);
    expect(render('template/script.sh.erb', { gpus: '1; id' }).failed).toBe(true);
  });

  it.each([
    ['org/name-1.5', 'org/name-1.5'],
    ['org/$(touch /tmp/otela-evil)', ''],
    ['org/a"; id; "', ''],
    ['../../etc/passwd', ''],
  ])('the model %j reaches the job as %j', (typed, model) => {
    const before = render('template/before.sh.erb', { model: typed }).text;
    const script = render('template/script.sh.erb', { gpus: '2' }).text;
    // A program in place of the agent prints a job script with its arguments.
    const agent = 'otela-agent() { printf "echo ran"; printf " %q" "$@"; }; export -f otela-agent\n';
    const { status, stdout } = bash(`${before}\n${agent}\n${script}`);
    if (model === '') expect([status, stdout]).toEqual([64, '']);
    else expect([status, stdout]).toEqual([0, `ran sbatch --model ${model} --gpus 2\n`]);
  });

  it('shows the chat of the gateway when the model is ready', () => {
    const { text } = render('view.html.erb', { model: 'org/<b>' });
    expect(text).toContain(`href="${GATEWAY}/#/chat?model=org%2F%3Cb%3E"`);
    expect(text).toContain('<code>org/&lt;b&gt;</code>');
  });
});

it('the recipes have the version of this release, and are programs of their languages', () => {
  const { version } = manifest;
  const recipe = read('deploy/easybuild', `otela-agent-${version}.eb`);
  const names = spawnSync(
    'python3',
    ['-c', `SYSTEM, ARCH = {}, 'aarch64'\nexec(open(0).read())\nprint(version, sources[0])`],
    {
      input: recipe,
      encoding: 'utf8',
    },
  );
  expect(names.stdout).toBe(`${version} otela-agent-linux-arm64\n`);
  const spack = read('deploy/spack/packages/otela_agent/package.py');
  expect(spawnSync('python3', ['-c', 'import ast; ast.parse(open(0).read())'], { input: spack }).status).toBe(0);
  expect(spack).toContain(`"${version}",`);
  const lua = join(ROOT, 'deploy/modules/otela-agent', `${version}.lua`);
  if (LUA !== undefined) expect(spawnSync(LUA, ['-p', lua]).status).toBe(0);
  expect(readFileSync(lua, 'utf8')).toContain(`"Version: ${version}"`);
});
