/** The part of npm's oidc-provider that the tests use; it has no types. */
declare module 'oidc-provider' {
  import type { RequestListener } from 'node:http';

  export default class Provider {
    constructor(issuer: string, configuration: Record<string, unknown>);
    callback(): RequestListener;
    proxy: boolean;
  }
}
