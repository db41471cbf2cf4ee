/**
 * The files of this suite that `npm test` runs on Cloudflare's runtime (`wrangler dev`), in the part `worker`: the same
 * files as on Node. A start takes ten seconds there, so these are the files that cover most of the API. Any other file
 * runs with `OTELA_TEST_HOST=worker npx vitest run --project conformance FILE`.
 */
export const WORKER_FILES: readonly string[] = [
  'http/answers',
  'batch/batch-edge-cases',
  'batch/batches',
  'batch/replayed-work',
  'people',
  'sdk/openai-sdk',
  'sdk/python-sdk',
  'registry',
  'routing',
  'sealed/sealed-sdk',
  'sealed/sealed-streams',
];

/** Files that cannot pass there, and why. */
export const NODE_ALONE: Readonly<Record<string, string>> = {
  'http/connections':
    'the proxy of wrangler dev, at Cloudflare its edge, has the connections: the Worker sees requests alone',
  'http/framing': 'the same: the proxy parses HTTP, and what it lets through is its own',
  'gateway-cli': 'flags of otela-gateway serve, backup and doctor',
  starting: 'what otela-gateway serve says when it cannot start',
};
