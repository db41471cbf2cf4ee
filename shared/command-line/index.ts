/** The command-line kit of `otela-gateway`, `otela-agent`, `otela-plan`, `otela-factory` and `otela`. */
export { UsageError } from './error.ts';
export { type Flag, type Flags, JSON_FLAG, parseLine, type Taken, type Values } from './flags.ts';
export {
  type Command,
  complaint,
  EXIT_DONE,
  EXIT_USAGE,
  flagTable,
  helpOf,
  type Program,
  readCommand,
} from './program.ts';
export { runProgram } from './run.ts';
