// Signs and verifies with GitHub's reference code. Usage: node sign.mjs sign|verify SECRET [SIGNATURE] < body
import { readFileSync } from "node:fs";
import { sign, verify } from "@octokit/webhooks-methods";

const [action, secret, signature] = process.argv.slice(2);
const body = readFileSync(0, "utf8");
const answer = action === "sign" ? await sign(secret, body) : await verify(secret, body, signature);
process.stdout.write(String(answer));
