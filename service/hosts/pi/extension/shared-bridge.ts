/**
 * One bridge for all sessions of this Pi process.
 *
 * Pi loads the extension anew for every session, so that what outlives one is kept with the process.
 */

import { Bridge } from "./bridge.ts";
import type { Installation } from "./installation.ts";

interface Shared {
  /** What the bridge was started with: another installation starts another one. */
  key: string;
  bridge: Promise<Bridge>;
  gone: boolean;
  sessions: Set<object>;
}

const PLACE = Symbol.for("context-paging.bridge");
const place = globalThis as typeof globalThis & { [PLACE]?: Shared };

/**
 * The running bridge, or a new one. `session` uses it until it is released.
 *
 * @throws BridgeFailure it does not start.
 */
export function acquireBridge(installation: Installation, session: object): Promise<Bridge> {
  const key = JSON.stringify(installation);
  let shared = place[PLACE];
  if (!shared || shared.gone || shared.key !== key) {
    shared = started(key, installation);
    place[PLACE] = shared;
  }
  shared.sessions.add(session);
  return shared.bridge;
}

/** A session ends. With `last`, Pi may end too: the bridge stops if no other session uses it. */
export async function releaseBridge(session: object, last: boolean): Promise<void> {
  const shared = place[PLACE];
  if (!shared?.sessions.delete(session) || !last || shared.sessions.size > 0) return;
  delete place[PLACE];
  if (!shared.gone) await (await shared.bridge).stop();
}

function started(key: string, installation: Installation): Shared {
  const shared: Shared = { key, bridge: Bridge.start(installation), gone: false, sessions: new Set() };
  const gone = () => {
    shared.gone = true;
  };
  shared.bridge.then((bridge) => bridge.onFailure(gone), gone);
  return shared;
}
