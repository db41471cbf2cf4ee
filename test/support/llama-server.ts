/** llama.cpp's server, played by the mock engine, which asks for the key as llama.cpp does. */
export const llamaServer = (node: string, engine: string) => `#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in
    -m) [ -e "$2" ] || { echo "failed to open $2"; exit 1; }; shift 2 ;;
    --alias) model=$2; shift 2 ;;
    --port) port=$2; shift 2 ;;
    *) shift ;;
  esac
done
exec ${node} ${engine} --model "$model" --port "$port" --api-key-env LLAMA_API_KEY
`;
