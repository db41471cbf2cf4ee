/** The command-line kit of `otela-gateway`, `otela-agent`, `otela-plan`, `otela-factory` and `otela`. */
export { UsageError } from './error.ts';
export { type AcceptedValues, type Flag, type Flags, JSON_FLAG, type ParsedFlags, parseLine } from './flags.ts';
export {
  type Command,
  commandErrorMessage,
  EXIT_DONE,
  EXIT_SOFTWARE,
  EXIT_UNAVAILABLE,
  EXIT_USAGE,
  flagTable,
  helpText,
  type Program,
  readCommand,
} from './program.ts';
export { runProgram } from './run.ts';
