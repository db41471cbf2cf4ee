import type { IncomingHttpHeaders } from 'node:http';
import { ApiError } from '../../shared/openai/errors.ts';
import { parseRequirements, type Requirement, RequirementError } from '../../shared/routing/requirements.ts';
import { readProviderList } from '../../shared/routing/trust.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
const TRUST_METADATA = 'otela_trusted_providers';
const REQUIRE_HEADER = 'x-otela-require';
const REQUIRE_METADATA = 'otela_require';

/** Where a client allows its request to go: all of it holds. */
export interface Restrictions {
  /** Lists of providers. */
  providers: readonly (readonly string[])[];
  requirements: readonly Requirement[];
}

/** Of the headers and of the body's `metadata`; given both, both hold. @throws ApiError 400 */
export function restrictionsOf(headers: IncomingHttpHeaders, metadata: Readonly<Record<string, string>>): Restrictions {
  const said = (header: string, member: string): [string, string][] => {
    const found: [string, string | undefined][] = [
      [header, headers[header]?.toString()],
      [`metadata.${member}`, metadata[member]],
    ];
    return found.flatMap(([param, text]): [string, string][] => (text === undefined ? [] : [[param, text]]));
  };
  return {
    providers: said(TRUST_HEADER, TRUST_METADATA).map(([param, text]) => readProviders(text, param)),
    requirements: said(REQUIRE_HEADER, REQUIRE_METADATA).flatMap(([param, text]) => readRequirements(text, param)),
  };
}

function readProviders(text: string, param: string): string[] {
  const list = readProviderList(text);
  if (list !== undefined) return list;
  const message = `${param} must be a list of at most 64 provider ids, as in "eth, psi@peer".`;
  throw new ApiError('unknown_provider', message, { param });
}

function readRequirements(text: string, param: string): Requirement[] {
  try {
    return parseRequirements(text);
  } catch (error) {
    if (error instanceof RequirementError) throw new ApiError(error.code, `${param}: ${error.message}.`, { param });
    throw error;
  }
}
