/** Name of the only registry object of a gateway. */
export const REGISTRY_OBJECT_NAME = 'registry';
