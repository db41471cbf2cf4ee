/** The page of providers, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

it('providers: a join token that admits an agent, and a job script that is one whatever was typed', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Providers');
  await page.getByRole('button', { name: 'New join token' }).click();
  await page.getByLabel('Name').fill('summer');
  await page.getByLabel('Provider', { exact: true }).fill('summer-school');
  await page.getByRole('button', { name: 'Create' }).click();
  const token = await page.locator('.secret').innerText();
  expect(token).toMatch(/^otela-join-/);
  const { origin } = new URL(page.url());
  expect(await page.locator('.command').innerText()).toBe(`curl -fsSL ${origin}/install | OTELA_TOKEN=${token} sh`);
  await page.getByLabel('Model').fill("x'; touch /tmp/otela-evil; '");
  await page.getByLabel('Partition').fill('gpu\n#SBATCH --uid=0');
  const script = await page.locator('.wizard pre').innerText();
  expect(spawnSync('bash', ['-n'], { input: script }).status).toBe(0);
  expect(
    script
      .split('\n')
      .filter((line) => line.startsWith('#SBATCH'))
      .join(),
  ).not.toContain('uid=0 ');
  expect(script.match(/^#SBATCH/gm)).toHaveLength(6);
  expect(script).toContain(`vllm serve 'x'\\''; touch /tmp/otela-evil; '\\'''`);
  await page.getByLabel('Account').fill('proj-42');
  await page.getByLabel('QOS').fill('normal');
  await page.getByLabel('Constraint').fill('a100|h100');
  await page.getByLabel('Memory').fill('64G');
  await page.getByLabel('CPUs').fill('16');
  await page.getByLabel('Container').selectOption('Apptainer');
  await page.getByLabel('Image').fill('/images/vllm.sif');
  await page.getByText('More options').click();
  await page.getByLabel('Options of sbatch').fill('reservation=maint exclusive');
  await page.getByLabel('Arguments of the engine').fill(`--chat-template '/my templates/x.jinja' $(id)`);
  const full = await page.locator('.wizard pre').innerText();
  expect(spawnSync('bash', ['-n'], { input: full }).status).toBe(0);
  for (const line of [
    '#SBATCH --account=proj-42',
    '#SBATCH --qos=normal',
    '#SBATCH --constraint=a100|h100',
    '#SBATCH --mem=64G',
    '#SBATCH --cpus-per-task=16',
    '#SBATCH --reservation=maint',
    '#SBATCH --exclusive',
  ])
    expect(full.split('\n')).toContain(line);
  expect(full).toContain('apptainer exec --nv --bind "$HF_HOME" /images/vllm.sif vllm serve');
  expect(full).toContain(`--chat-template '/my templates/x.jinja' '$(id)'`);
  await page.getByLabel('Arguments of the engine').fill(`--chat-template 'open`);
  await page.getByText('A quotation mark is not closed.').waitFor();
  expect(complaints).toEqual([]);
});
