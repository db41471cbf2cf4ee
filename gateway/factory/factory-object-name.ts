/**
 * Name of the only factory object. There is one for all autoscalers, because requests need one list of the models that
 * can be started.
 */
export const FACTORY_OBJECT_NAME = 'factory';
