/** Proxies and routers distributed as Python packages; those of vLLM and SGLang are written in Rust. */
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { freePort, Managed, temporaryDirectory } from '../../test/support/processes.ts';
import type { Target } from '../client.ts';
import { answering, python } from './installed.ts';
import { MODEL, type Peer } from './peer.ts';

const LITELLM = '1.106.0';
const VLLM_ROUTER = '0.1.17';
const SGLANG_ROUTER = '0.3.2';
const KEY = 'sk-bench-of-peers';

const installed = (name: string, version: string, more: string[] = []) =>
  python(name, [`${name}==${version}`, ...more]);
const litellmBin = () => python('litellm', [`litellm[proxy]==${LITELLM}`]);

export const litellm: Peer = {
  name: 'LiteLLM',
  does: { keys: true, usage: true, tunnel: false },
  install: () => litellmBin().then(() => LITELLM),
  start: async (engine): Promise<Target> => {
    const directory = await temporaryDirectory('otela-peer-litellm');
    const [bin, port] = [await litellmBin(), await freePort()];
    const config = join(directory, 'config.yaml');
    await writeFile(
      config,
      `model_list:
  - model_name: ${MODEL}
    litellm_params: { model: openai/${MODEL}, api_base: "${engine}/v1", api_key: none }
general_settings: { master_key: ${KEY} }
litellm_settings: { telemetry: false }
`,
    );
    await chmod(config, 0o600);
    const env = { LITELLM_LOCAL_MODEL_COST_MAP: 'True', LITELLM_LOG: 'ERROR', PATH: `${bin}:${process.env.PATH}` };
    const command = [join(bin, 'litellm'), '--config', config, '--host', '127.0.0.1', '--port', String(port)];
    const child = new Managed(command, { label: 'LiteLLM', env, cwd: directory });
    const url = `http://127.0.0.1:${port}`;
    await answering(`${url}/health/liveliness`, child);
    return { url, key: KEY };
  },
};

function router(name: string, version: string, command: (bin: string) => string[]): Peer {
  return {
    name,
    does: { keys: false, usage: false, tunnel: false },
    install: () => installed(name, version).then(() => version),
    start: async (engine) => {
      const [bin, port, metrics] = [await installed(name, version), await freePort(), await freePort()];
      const args = ['--worker-urls', engine, '--host', '127.0.0.1', '--port', String(port)];
      const more = ['--policy', 'round_robin', '--prometheus-port', String(metrics)];
      const child = new Managed([...command(bin), ...args, ...more], { label: name });
      const url = `http://127.0.0.1:${port}`;
      await answering(`${url}/v1/models`, child);
      return { url };
    },
  };
}

export const vllmRouter = router('vllm-router', VLLM_ROUTER, (bin) => [join(bin, 'vllm-router')]);
export const sglangRouter = router('sglang-router', SGLANG_ROUTER, (bin) => [
  join(bin, 'python'),
  '-m',
  'sglang_router.launch_router',
]);
