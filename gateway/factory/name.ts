/** There is one object for all factories: what they start is one list of models to a request. */
export const FACTORY_OBJECT_NAME = 'factory';
