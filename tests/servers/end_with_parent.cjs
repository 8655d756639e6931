// Preloaded into a server: ends it when its standard input closes, that is when the tests are gone.
process.stdin.on("end", () => process.exit(0));
process.stdin.on("error", () => process.exit(0));
process.stdin.resume();
