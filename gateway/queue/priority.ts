import { ApiError } from '../../shared/openai/errors.ts';
import type { Priority } from '../../shared/routing/fair-queue.ts';

const HEADER = 'x-otela-priority';

/** `x-otela-priority`; without it somebody waits for the answer. @throws ApiError 400 */
export function priorityOf(request: Request): Priority {
  const given = request.headers.get(HEADER);
  if (given === null || given === 'interactive') return 'interactive';
  if (given === 'batch') return given;
  throw new ApiError('invalid_request', `${HEADER} is interactive or batch.`, { param: HEADER });
}
