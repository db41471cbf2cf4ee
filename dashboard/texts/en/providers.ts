export const joinTokens = {
  about: 'An agent needs a join token to bring a node into this gateway.',
  title: 'Join tokens',
  none: 'There is no join token yet. An agent needs one to join.',
  create: 'New join token',
  yours: 'Your new join token.',
  any: 'any',
  of: (n: number, most: number) => `${n} of ${most}`,
  revoke: 'Revoke',
  revokeTitle: (name: string) => `Revoke “${name}”?`,
  revokeFollows: 'No node joins with it any more, and the nodes that joined with it end. This cannot be undone.',
  columns: {
    name: 'Name',
    provider: 'Provider',
    cluster: 'Cluster',
    nodes: 'Nodes',
    expires: 'Expires',
    state: 'State',
    actions: 'Actions',
  },
  form: {
    name: 'Name',
    nameHint: 'Where it is used, for example the name of a cluster.',
    provider: 'Provider',
    providerHint: 'Its id: lower-case letters, digits and dashes. A new id creates the provider.',
    cluster: 'Cluster',
    clusterHint: 'Empty: the agent says which.',
    most: 'Most nodes',
    mostHint: 'At a time. Empty: 1,000.',
    expires: 'Expires',
    expiresHint: 'At the end of this day, UTC. Empty: never.',
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

export const providers = {
  title: 'Providers',
  none: 'There is no provider yet. A provider is a group that runs nodes.',
  create: 'New provider',
  editTitle: (id: string) => `Edit ${id}`,
  columns: { name: 'Name', id: 'Id', trusted: 'Trusted by default', most: 'Most nodes', state: 'State' },
  deleted: 'deleted',
  mostDefault: '2,000',
  form: {
    id: 'Id',
    idHint: 'Lower-case letters, digits and dashes. It cannot be changed later. For a provider of a peer: name@peer.',
    name: 'Name',
    trusted: 'Trusted by default',
    trustedHint: 'Gets requests of keys that name no provider.',
    most: 'Most nodes',
    mostHint: 'At a time. Empty: 2,000.',
  },
  token: 'New join token',
  delete: 'Delete',
  deleteTitle: (name: string) => `Delete ${name}?`,
  deleteFollows:
    'Its join tokens are revoked and its nodes leave; requests that run on them break off. You can create the provider again, without its tokens.',
};
