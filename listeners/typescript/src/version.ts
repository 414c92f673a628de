/** The version of this kit, as `nats micro` shows it: that of package.json. */
export const VERSION = "0.1.0";
