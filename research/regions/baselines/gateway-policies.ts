import { seededRandom } from '../../../scheduler/simulator/random.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import type { NodeLoad } from '../../../shared/routing/node-load.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { GPU_WEIGHTS } from '../../../shared/routing/policies/node-weights.ts';
import { prefixAffinity } from '../../../shared/routing/policies/prefix-affinity.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { roundRobin } from '../../../shared/routing/policies/round-robin.ts';
import { scorePolicy } from '../../../shared/routing/policies/score.ts';
import { weighted } from '../../../shared/routing/policies/weighted.ts';
import type { Policy, RoutedRequest } from '../../../shared/routing/routing-policy.ts';
import type { Cluster } from '../simulator/cluster.ts';
import type { RegionPolicy } from '../simulator/policy.ts';
import type { Server } from '../simulator/server.ts';

/** A server as the gateway's router sees a node. */
class Node implements Candidate {
  readonly server: Server;
  readonly session: string;
  readonly provider = 'simulated';
  readonly cluster: string;
  readonly region: string;
  readonly tier = 'stable';
  readonly gpu: string;
  readonly gpus = 1;

  constructor(server: Server, region: string, gpu: string) {
    this.server = server;
    this.session = `server ${server.id}`;
    this.cluster = region;
    this.region = region;
    this.gpu = gpu;
  }

  get inFlight(): number {
    return this.server.queued + (this.server.running === undefined ? 0 : 1);
  }

  get load(): NodeLoad {
    const running = this.server.running === undefined ? 0 : 1;
    return { at: 0, running, waiting: this.server.queued };
  }

  get inFlightThen(): number {
    return this.inFlight;
  }
}

const GATEWAY_POLICIES = ['least-load', 'prefix-affinity', 'weighted', 'random', 'round-robin', 'score'] as const;
type Name = (typeof GATEWAY_POLICIES)[number];

function fresh(name: Name): Policy {
  switch (name) {
    case 'least-load':
      return leastLoadPolicy;
    case 'prefix-affinity':
      return prefixAffinity();
    case 'weighted':
      return weighted(() => GPU_WEIGHTS);
    case 'random':
      return randomPolicy;
    case 'round-robin':
      return roundRobin();
    case 'score':
      return scorePolicy();
  }
}

/** One of the policies in the gateway's router, with all servers of all regions as its nodes. */
export function gatewayPolicy(name: Name, seed: number): RegionPolicy {
  const policy = fresh(name);
  const random = seededRandom(seed);
  const nodes: Node[] = [];
  const lists = new WeakMap<readonly Server[], Node[]>();
  const listOf = (cluster: Cluster, hosts: readonly Server[]): Node[] => {
    let list = lists.get(hosts);
    if (list === undefined) {
      list = hosts.map((server) => {
        nodes[server.id] ??= new Node(
          server,
          cluster.world.topology.regions[server.region]?.name ?? '',
          cluster.world.kinds[server.kind]?.gpu.class ?? '',
        );
        return nodes[server.id] as Node;
      });
      lists.set(hosts, list);
    }
    return list;
  };
  return {
    name: `gateway ${name}`,
    choose({ task }, cluster) {
      const candidates = listOf(cluster, cluster.hosts(task.model));
      const request: RoutedRequest = {
        model: `model ${task.model}`,
        priority: 'interactive',
        inputTokens: 0,
        ...(task.prefix < 0 ? {} : { prefixHash: Math.imul(task.prefix, 0x9e3779b1) >>> 0 }),
      };
      const chosen = policy.pick(candidates, request, random);
      if (!(chosen instanceof Node)) return undefined;
      policy.onRequestStart(chosen, request);
      return chosen.server;
    },
  };
}
