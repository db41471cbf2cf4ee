/** The contract's object as a Durable Object: bundled by test/e2e/standalone/object-contract.test.ts. */

import { toDurableObject } from '../../../gateway/hosts/worker/to-durable-object.ts';
import type { GatewayObject } from '../../../gateway/platform/gateway-object.ts';
import type { ObjectNamespace } from '../../../gateway/platform/object-context.ts';
import { ContractObject, contractDoor } from '../../support/objects/contract-object.ts';

export class TunnelObject extends toDurableObject<ContractObject & GatewayObject>(ContractObject) {}

export default {
  fetch: (request: Request, env: { TUNNEL: ObjectNamespace<ContractObject> }) => contractDoor(request, env.TUNNEL),
};
