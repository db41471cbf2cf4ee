/**
 * Classes of models with different timeouts. Models that reason before they answer take far longer (95th percentile 174
 * s, against 31 s, in the paper).
 */
export const MODEL_CLASSES = ['standard', 'reasoning'] as const;
export type ModelClass = (typeof MODEL_CLASSES)[number];
