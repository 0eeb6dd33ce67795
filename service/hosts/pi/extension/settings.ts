/** Settings as Pi's settings files have them. What they mean is the bridge's to say. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { CONFIG_DIR_NAME, type ExtensionContext, getAgentDir } from "@earendil-works/pi-coding-agent";

export interface SettingsSources {
  global_settings: unknown;
  project_settings: unknown;
  project_trusted: boolean;
}

const FILE = "settings.json";
const SECTION = "contextPaging";

/**
 * The `contextPaging` objects of the global settings and, if the project is trusted, of the project's.
 *
 * @throws Error a file is there and cannot be read.
 */
export function readSettings(ctx: ExtensionContext): SettingsSources {
  const trusted = ctx.isProjectTrusted();
  return {
    global_settings: section(join(getAgentDir(), FILE)),
    project_settings: trusted ? section(join(ctx.cwd, CONFIG_DIR_NAME, FILE)) : null,
    project_trusted: trusted,
  };
}

function section(path: string): unknown {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new Error(`Context paging is off: the settings ${path} cannot be read (${(error as Error).message})`);
  }
  try {
    const settings: unknown = JSON.parse(text.replace(/^\uFEFF/, ""));
    const isObject = typeof settings === "object" && settings !== null && !Array.isArray(settings);
    return isObject ? { [SECTION]: (settings as Record<string, unknown>)[SECTION] ?? null } : settings;
  } catch (error) {
    throw new Error(`Context paging is off: ${path} is not JSON (${(error as Error).message})`);
  }
}
