/** Runs the contract where there is no test runner: bundled by test/e2e/standalone/d1.test.ts. */
import { DurableObject } from 'cloudflare:workers';
import { d1Contract } from './d1-contract.ts';

export class TunnelObject extends DurableObject {}
export class RegistryObject extends DurableObject {}
export class LimitsObject extends DurableObject {}
export class UsageObject extends DurableObject {}

export default {
  fetch: async (request, env) => {
    if (new URL(request.url).pathname === '/contract') return Response.json(await d1Contract(env.DB));
    const rows = await env.DB.prepare('SELECT count(*) AS n FROM t').first('n');
    return Response.json({ rows });
  },
} satisfies ExportedHandler<{ DB: D1Database }>;
