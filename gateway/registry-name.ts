/** There is one registry object per gateway. */
export const REGISTRY_NAME = 'registry';
