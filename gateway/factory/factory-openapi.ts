/** Schemas of the request and response of `/factory/exchange`, for `/openapi.json`. */
import { EXCHANGE_PATH, exchangeAnswer, factoryReport } from '../../shared/factory/factory-exchange.ts';
import type { RouteDescription } from '../http/route-description.ts';

export const FACTORY_ROUTES: readonly RouteDescription[] = [
  {
    method: 'post',
    path: EXCHANGE_PATH,
    summary:
      'An autoscaler reports its state and gets the demand. The response waits until the demand changes, at most wait_ms. 409: a newer exchange replaced this exchange.',
    needs: 'a factory token',
    body: factoryReport,
    answer: exchangeAnswer,
  },
];
