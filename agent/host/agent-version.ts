import manifest from '../../package.json' with { type: 'json' };

/** The version in `otela-agent version` and in the node's record. */
export const AGENT_VERSION = manifest.version;
