/** Classes of models with different timeouts. Models that reason before they answer take far longer. */
export const MODEL_CLASSES = ['standard', 'reasoning'] as const;
export type ModelClass = (typeof MODEL_CLASSES)[number];
