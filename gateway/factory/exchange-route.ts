/** `POST /factory/exchange`: an autoscaler sends its report and receives the demand. */
import { Hono } from 'hono';
import {
  EXCHANGE_MAX_BYTES,
  EXCHANGE_PATH,
  type ExchangeAnswer,
  ExchangeError,
  type FactoryReport,
  parseReport,
} from '../../shared/factory/factory-exchange.ts';
import { ApiError, methodNotAllowed } from '../../shared/openai/api-errors.ts';
import { presentedKey } from '../accounts/authenticate.ts';
import { readFactoryGrant } from '../accounts/factory-token-grant.ts';
import type { Env } from '../env.ts';
import { readJsonBody } from '../http/parse-body.ts';
import type { ExchangeReply } from './factory-object.ts';
import { FACTORY_OBJECT_NAME } from './factory-object-name.ts';
import type { FactoryIdentity } from './factory-reports.ts';

export const factoryRoutes = new Hono<{ Bindings: Env }>();

factoryRoutes.post('/exchange', async (c) => {
  const token = presentedKey(c.req.raw);
  const { tokenId, provider } = await readFactoryGrant(c.env, token, Date.now());
  const report = reportOf(await readJsonBody(c, EXCHANGE_MAX_BYTES));
  const reply = await exchange(c.env, { tokenId, provider, factory: report.factory }, report);
  // The token may have been revoked while the response was held, so it is checked again.
  if (reply.kind === 'over') await readFactoryGrant(c.env, token, Date.now());
  if (reply.kind === 'over') throw superseded();
  return c.json(reply.answer satisfies ExchangeAnswer, 200, { 'cache-control': 'no-store' });
});

factoryRoutes.all('/exchange', (c) => {
  throw methodNotAllowed(c.req.method, EXCHANGE_PATH, ['POST']);
});

/** @throws ApiError 400 with the path of the first error */
function reportOf(body: unknown): FactoryReport {
  try {
    return parseReport(body);
  } catch (error) {
    if (error instanceof ExchangeError) throw new ApiError('invalid_request', `${error.message}.`, { cause: error });
    throw error;
  }
}

/** @throws ApiError 503 */
async function exchange(env: Env, identity: FactoryIdentity, report: FactoryReport): Promise<ExchangeReply> {
  try {
    return (await env.FACTORY.getByName(FACTORY_OBJECT_NAME).exchange(identity, report)) as ExchangeReply;
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The report could not be stored. Try again shortly.', { cause });
  }
}

function superseded(): ApiError {
  return new ApiError('conflict', 'A newer exchange of this factory replaced this one.');
}
