/** Sealed requests, which this host cannot read: decides to which nodes they may go, and what each node receives. */

import type { DispatchContext } from '../attempts/dispatch-context.ts';
import type { SealRecipients } from '../attempts/parsed-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { NodeChoice } from '../routing/choose-node.ts';
import { isSealedType, RESUME_HEADER, SEAL_HEADER, SEAL_TO_HEADER, SEALED_BODY_MAX_BYTES } from '../seal/hpke-suite.ts';
import { readEnvelopes, readStamp, timingProblem } from '../seal/request-binding.ts';
import { SealError } from '../seal/seal-error.ts';
import type { Route } from './proxy-host.ts';
import type { ProxyRequest } from './proxy-http-types.ts';

type Header = ProxyRequest['header'];

/**
 * Reads the headers of a sealed request. Undefined if the request is not sealed. @param now seconds since 1970. @throws
 * ApiError 400, 413
 */
export function readSealed(header: Header, model: string | undefined, now: number): SealRecipients | undefined {
  const stamp = header(SEAL_HEADER) ?? undefined;
  const to = header(SEAL_TO_HEADER) ?? undefined;
  const typed = isSealedType(header('content-type'));
  if (!typed && stamp === undefined && to === undefined) return undefined;
  if (!typed || stamp === undefined || to === undefined || model === undefined)
    throw badSeal(
      'A sealed request must have the content-type application/otela-sealed and the headers x-otela-model, x-otela-seal and x-otela-seal-to.',
    );
  // A larger body is refused here. Otherwise every node would accept the request, give up and report an overload, and
  // SDKs would retry the request.
  if (Number(header('content-length') ?? 0) > SEALED_BODY_MAX_BYTES)
    throw new ApiError('request_too_large', `A sealed request may have at most ${SEALED_BODY_MAX_BYTES} bytes.`);
  const resume = header(RESUME_HEADER) ?? undefined;
  try {
    // An untimely request is refused here. Otherwise every node would refuse it without a reason, and the client would
    // not learn that its clock is wrong.
    const untimely = timingProblem(readStamp(stamp), now);
    if (untimely !== undefined) throw badSeal(`The sealed request is not valid at this time: ${untimely}.`);
    const envelopes = readEnvelopes(to);
    const headers: [string, string][] = [
      ['x-otela-model', model],
      [SEAL_HEADER, stamp],
    ];
    if (resume !== undefined) headers.push([RESUME_HEADER, resume]);
    return { headers: headers, envelopes };
  } catch (cause) {
    if (!(cause instanceof SealError)) throw cause;
    throw badSeal(`The request's seal cannot be read: ${cause.message}.`);
  }
}

function badSeal(message: string): ApiError {
  return new ApiError('invalid_request', message, { param: SEAL_HEADER });
}

/**
 * Restricts the route to the listed nodes, and to the model that the client named, because the client sealed that name.
 * @throws ApiError 400 for an alias of a model; 409 `seal_stale` if other nodes serve the model and none of the listed
 * nodes does
 */
export function sealedRoute(route: Route, model: string, { envelopes }: SealRecipients): Route {
  if (route.request.model !== model) {
    const message = `'${model}' is an alias. A sealed request must name the model itself: '${route.request.model}'.`;
    throw new ApiError('invalid_request', message, { param: 'x-otela-model' });
  }
  const listed = (kid: string | undefined) => kid !== undefined && envelopes.has(kid);
  const nodes = route.nodes.model(model);
  const isStale = () => ![...(nodes?.ready ?? []), ...(nodes?.suspected ?? [])].some(({ seal }) => listed(seal?.kid));
  // If no node serves the model now, later steps refuse the request with the reason.
  if (isStale() && (nodes?.ready.length ?? 0) > 0) throw sealStaleError();
  return {
    ...route,
    fallbacks: [],
    resumes: false,
    only: ({ sealKid }) => listed(sealKid),
    onlyScope: [...envelopes.keys()].sort().join(' '),
    stale: () => (isStale() ? sealStaleError() : undefined),
    mayWait: (error) => error.code !== 'seal_stale' && (route.mayWait?.(error) ?? true),
  };
}

export function sealStaleError(): ApiError {
  const message = 'No node that the request is sealed to still serves the model: get the keys of the nodes again.';
  return new ApiError('seal_stale', message, { param: SEAL_TO_HEADER });
}

/** Adds the content key for the chosen node only. */
export function withContentKey(context: DispatchContext, { node }: Pick<NodeChoice, 'node'>): DispatchContext {
  const { sealed } = context.parsed;
  const envelope = sealed?.envelopes.get(node.sealKid ?? '');
  if (sealed === undefined || envelope === undefined) return context;
  return { ...context, headers: [...context.headers, ...sealed.headers, [SEAL_TO_HEADER, envelope]] };
}
