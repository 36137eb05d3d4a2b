/** What is wrong with an export, with a package, or with how a script was called. */
export class BuildError extends Error {}
