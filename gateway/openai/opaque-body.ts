export { OpaqueBody } from '../../shared/asking/opaque-body.ts';
