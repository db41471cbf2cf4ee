/** Errors in the form of SCIM (RFC 7644 §3.12). */
import { ApiError } from '../../../shared/openai/api-errors.ts';

type ScimType = 'invalidFilter' | 'invalidSyntax' | 'invalidValue' | 'mutability' | 'noTarget' | 'uniqueness';

export class ScimError extends Error {
  readonly status: number;
  readonly scimType: ScimType | undefined;

  constructor(status: number, detail: string, scimType?: ScimType) {
    super(detail);
    this.status = status;
    this.scimType = scimType;
  }
}

/** Converts an error of the admin API. Other errors stay as they are. */
export function toScimError(error: unknown): unknown {
  if (!(error instanceof ApiError)) return error;
  // RFC 7644 has 400 where this gateway has 422.
  const status = error.status === 422 ? 400 : error.status;
  const type = error.code === 'invalid_json' ? 'invalidSyntax' : status === 400 ? 'invalidValue' : undefined;
  return new ScimError(status, error.message, type);
}

export function errorDocument({ status, message, scimType }: ScimError) {
  return {
    schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'],
    status: String(status),
    ...(scimType !== undefined && { scimType }),
    detail: message,
  };
}
