/** Request and response of `/factory/exchange`, for `/openapi.json`. */
import { EXCHANGE_PATH, exchangeAnswer, factoryReport } from '../../shared/factory/exchange.ts';
import type { RouteDescription } from '../http/route-description.ts';

export const FACTORY_ROUTES: readonly RouteDescription[] = [
  {
    method: 'post',
    path: EXCHANGE_PATH,
    summary:
      'What a factory of jobs has, for what is wanted of it. The answer is held until it is news, wait_ms at most. 409: a newer exchange took its place.',
    needs: 'a factory token',
    body: factoryReport,
    answer: exchangeAnswer,
  },
];
