/** For tests: RPC has no command for Pi's /tree. `/navigate ID` moves to an entry as /tree does. */

import type { ExtensionAPI } from "@earendil-works/pi-coding-agent";

export default function navigate(pi: ExtensionAPI): void {
  pi.registerCommand("navigate", {
    description: "Move to an entry of the session tree",
    handler: async (id, ctx) => {
      await ctx.navigateTree(id.trim());
    },
  });
}
