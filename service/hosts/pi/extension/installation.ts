/** What the installer wrote beside this file: the version, the recovery tools, and how to start the bridge. */

import { readFileSync } from "node:fs";

import type { ToolDefinition } from "./protocol.ts";

export interface Installation {
  version: string;
  /** The program that is the bridge, and its arguments. */
  command: string[];
  tools: ToolDefinition[];
  /** How long a request may take, in milliseconds. */
  timeout: number;
}

const COMMAND = "CONTEXT_PAGING_BRIDGE";
const TIMEOUT = "CONTEXT_PAGING_BRIDGE_TIMEOUT";
const DEFAULT_SECONDS = 30;

/**
 * The installation, with what the environment says otherwise: CONTEXT_PAGING_BRIDGE is a command, as a JSON array
 * or as a program that is run with the argument `bridge`; CONTEXT_PAGING_BRIDGE_TIMEOUT is in seconds.
 */
export function readInstallation(environment: NodeJS.ProcessEnv = process.env): Installation {
  const manifest = JSON.parse(readFileSync(new URL("./manifest.json", import.meta.url), "utf8"));
  const given = environment[COMMAND]?.trim();
  return {
    version: manifest.version,
    command: given ? commandOf(given) : manifest.command,
    tools: manifest.tools,
    timeout: 1000 * secondsOf(environment[TIMEOUT]),
  };
}

function commandOf(given: string): string[] {
  if (!given.startsWith("[")) return [given, "bridge"];
  const parts: unknown = JSON.parse(given);
  if (Array.isArray(parts) && parts.length > 0 && parts.every((part) => typeof part === "string")) return parts;
  throw new Error(`${COMMAND} must be a program, or a JSON array of a program and its arguments`);
}

function secondsOf(given: string | undefined): number {
  if (given === undefined || given.trim() === "") return DEFAULT_SECONDS;
  const seconds = Number(given);
  if (Number.isFinite(seconds) && seconds > 0 && seconds <= 86_400) return seconds;
  throw new Error(`${TIMEOUT} must be a number of seconds above 0`);
}
