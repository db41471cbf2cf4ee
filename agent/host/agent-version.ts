import manifest from '../../package.json' with { type: 'json' };

/** The version that `otela-agent version` prints and the node's record contains. */
export const AGENT_VERSION = manifest.version;
