/** What a gateway is told that looks at this node: the engine's last output and how busy the GPUs are. */
import { INSPECTED_LOG_MAX_BYTES, type Inspected } from '../../shared/deployment/answer.ts';
import type { Engine } from '../engine/engine.ts';
import type { GpuUseReader } from '../host/gpu-use.ts';

/** `engine`: undefined where this agent runs none; then there is no log. */
export async function inspect(engine: Pick<Engine, 'text'> | undefined, gpuUse: GpuUseReader): Promise<Inspected> {
  return { kind: 'inspected', log: engine?.text(INSPECTED_LOG_MAX_BYTES) ?? '', gpus: await gpuUse.read() };
}
