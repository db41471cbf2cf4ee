export const joinTokens = {
  about: 'An agent needs a join token to bring a node into this gateway.',
  title: 'Join tokens',
  none: 'There is no join token yet. An agent needs one to join.',
  create: 'New join token',
  yours: 'Your new join token.',
  any: 'any',
  of: (n: number, most: number) => `${n} of ${most}`,
  revoke: 'Revoke',
  revokeOne: (name: string) => `Revoke ${name}`,
  revokeTitle: (name: string) => `Revoke “${name}”?`,
  revokeFollows: 'No node joins with it any more, and the nodes that joined with it end. This cannot be undone.',
  columns: {
    name: 'Name',
    provider: 'Provider',
    cluster: 'Cluster',
    prefix: 'Begins with',
    nodes: 'Nodes',
    expires: 'Expires',
    state: 'State',
    actions: 'Actions',
  },
  form: {
    name: 'Name',
    provider: 'Provider',
    providerHint: 'Lower-case letters, digits and dashes.',
    cluster: 'Cluster',
    clusterHint: 'Empty: the agent says which.',
    most: 'Most nodes',
    mostHint: 'At a time. Empty: 1,000.',
  },
};

export const wizard = {
  title: 'A job script',
  fields: {
    model: 'Model',
    engine: 'Engine',
    gpus: 'GPUs',
    partition: 'Partition',
    time: 'Time',
    container: 'Container',
    noContainer: 'none',
    image: 'Image',
  },
  /** Around the name of the file and that of the command. */
  tokenFile: ['Put the join token into ', ', readable by you alone. Then run ', '.'],
};
