// Runs the module given as the argument and prints its decisions; an import is an error.
import { readFileSync } from "node:fs";

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const imports = WebAssembly.Module.imports(module);
if (imports.length > 0) {
  console.error("the module has imports:", imports);
  process.exit(1);
}
const { memory, decide, text } = new WebAssembly.Instance(module).exports;
const length = decide();
if (length < 0) {
  console.error("the decisions could not be printed");
  process.exit(1);
}
process.stdout.write(new TextDecoder().decode(new Uint8Array(memory.buffer, text(), length)));
