/** The contract's object as a Durable Object: bundled by test/e2e/standalone/object-contract.test.ts. */
import { DurableObject } from 'cloudflare:workers';
import type { GatewayObject } from '../../../gateway/gateway-object.ts';
import { durable } from '../../../gateway/hosts/worker/durable.ts';
import type { ObjectNamespace } from '../../../gateway/object-context.ts';
import { ContractObject, contractDoor } from '../../support/objects/contract-object.ts';

export class TunnelObject extends durable<ContractObject & GatewayObject>(ContractObject) {}
export class RegistryObject extends DurableObject {}
export class LimitsObject extends DurableObject {}
export class UsageObject extends DurableObject {}
export class QueueObject extends DurableObject {}
export class ObserveObject extends DurableObject {}

export default {
  fetch: (request: Request, env: { TUNNEL: ObjectNamespace<ContractObject> }) => contractDoor(request, env.TUNNEL),
};
