/** There is one registry object per gateway. */
export const REGISTRY_OBJECT_NAME = 'registry';
