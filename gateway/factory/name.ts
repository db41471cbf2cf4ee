/** There is one object for all autoscalers: to a request, the models that they start are one list. */
export const FACTORY_OBJECT_NAME = 'factory';
