/** A whole agent with mock tools of GPUs: its metrics page and its registry record. */
import { expect, it } from 'vitest';
import { fakeTool, runToEnd, scratch, startAgent, userEnv } from '../support/harness.ts';

const NVIDIA_SMI = `case "$*" in
  *index,uuid,name*) echo '0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559'; echo '1, GPU-bbbb, NVIDIA H100 80GB HBM3, 81559';;
  *power.draw*) echo 'GPU-aaaa, 87, 60211, 81559, 412.08, 61, Disabled'; echo 'GPU-bbbb, 13, 512, 81559, [N/A], [N/A], Disabled';;
  *) echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa)'; echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb)';;
esac`;

it('measures its GPUs for its metrics page and for the registry', async () => {
  const directory = scratch();
  fakeTool(directory, 'nvidia-smi', NVIDIA_SMI);
  const agent = startAgent(directory, []);
  await agent.until(() => agent.tunnels[0]?.latest?.gpu_state !== undefined);
  expect(agent.tunnel.latest?.gpu_state).toEqual({
    ...{ use: 0.5, memory_used_mib: 30_720, power_w: 400, temperature_c: 60 },
  });
  const { out } = await runToEnd(['metrics'], userEnv(directory));
  expect(out.split('\n').filter((line) => line.startsWith('otela_agent_gpu_'))).toEqual([
    'otela_agent_gpu_use_ratio{gpu="0"} 0.87',
    'otela_agent_gpu_use_ratio{gpu="1"} 0.13',
    `otela_agent_gpu_memory_used_bytes{gpu="0"} ${60_211 * 1024 ** 2}`,
    `otela_agent_gpu_memory_used_bytes{gpu="1"} ${512 * 1024 ** 2}`,
    `otela_agent_gpu_memory_bytes{gpu="0"} ${81_559 * 1024 ** 2}`,
    `otela_agent_gpu_memory_bytes{gpu="1"} ${81_559 * 1024 ** 2}`,
    'otela_agent_gpu_power_watts{gpu="0"} 412.08',
    'otela_agent_gpu_temperature_celsius{gpu="0"} 61',
  ]);
});
