/** Opens the service for requests over the mesh, in both directions, and the ingress in front of it. */

import { UsageError } from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import type { StartConfig } from '../config/start-config.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { LoadMeter } from '../engine/engine-load.ts';
import type { StateDir } from '../host/state-directory.ts';
import { type LocalNodeFacts, RequestService, usageDirectoryOf } from '../ingress/request-service.ts';
import type { SealOpener } from '../seal/seal-opener.ts';
import type { MeshMembership } from './mesh-membership.ts';
import type { Sessions } from './session/sessions.ts';

interface RequestServiceOptions {
  config: Pick<StartConfig, 'ingress' | 'region'>;
  network: MeshMembership;
  state: StateDir;
  /** Returns the engine's address; undefined while no engine answers. */
  engine(): EngineTarget | undefined;
  load: LoadMeter;
  /** Returns the number of this node's GPUs; 0: unknown. */
  gpus(): number;
  seals: SealOpener;
  log(line: string): void;
}

/** Opens the ingress immediately: it serves its own node even without a gateway. @throws UsageError */
export async function openRequestService({
  config,
  network,
  state,
  engine,
  load,
  gpus,
  seals,
  log,
}: RequestServiceOptions): Promise<RequestService> {
  const service = new RequestService({
    config: config.ingress,
    region: config.region,
    replica: network.replica,
    issuerName: (issuer) => network.issuerName(issuer),
    retentionMs: () => network.retentionMs,
    engine,
    load,
    gpus,
    seals,
    directory: () => state.path,
    usageDirectory: usageDirectoryOf(state.path),
    log,
  });
  network.serve(service.requests);
  try {
    await service.open();
    return service;
  } catch (error) {
    await service.close();
    throw new UsageError(`--ingress: ${errorText(error)}`);
  }
}

/** The facts with which the ingress shows its own node while no gateway has admitted it. */
export function localNodeFacts({ facts, state }: Sessions): LocalNodeFacts | undefined {
  if (state !== 'SERVING') return undefined;
  const { tier, labels, models, hardware, agent_version } = facts;
  return { tier, labels, models, hardware: { ...hardware, gpus: [] }, agent_version };
}
