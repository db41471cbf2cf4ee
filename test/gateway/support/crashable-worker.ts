/**
 * The real Worker with one more route: `POST /__crash/SESSION` ends the session's object as a fault or a deploy would.
 */

import type { Env } from '../../../gateway/env.ts';
import gateway, { TunnelObject } from '../../../gateway/index.ts';

class CrashableTunnel extends TunnelObject {
  crash(): void {
    this.ctx.abort('a test ends this object');
  }
}

/** All other objects are unchanged: an explicit export takes precedence over the same name of `export *`. */
export * from '../../../gateway/index.ts';
export { CrashableTunnel as TunnelObject };

export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    const { pathname } = new URL(request.url);
    const session = /^\/__crash\/([a-z2-7]{26})$/.exec(pathname)?.[1];
    if (session === undefined) return gateway.fetch(request, env, ctx);
    const stub = env.TUNNEL.getByName(session) as unknown as { crash(): Promise<void> };
    await stub.crash().catch(() => undefined);
    return new Response(null, { status: 204 });
  },
};
