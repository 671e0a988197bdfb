import base64
import json
import pathlib
import unittest

import orbit_digest

VECTORS = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "digest-vectors.json").read_text("utf-8"))


def body_of(vector):
    if "body" in vector:
        return vector["body"].encode()
    if "body_base64" in vector:
        return base64.b64decode(vector["body_base64"])
    if "body_repeat" in vector:
        return "".join(text * times for text, times in vector["body_repeat"]).encode()
    return None


class Vectors(unittest.TestCase):
    def test_accepted(self):
        self.assertGreaterEqual(len(VECTORS["accepted"]), 200)
        for vector in VECTORS["accepted"]:
            with self.subTest(vector["name"]):
                body, omit = body_of(vector), vector.get("omit")
                self.assertEqual(orbit_digest.digest(vector["operation"], vector["path"], body, omit), vector["digest"])
                if body is not None and "canonical_hex" in vector:
                    self.assertEqual(orbit_digest.canonical(body, omit).hex(), vector["canonical_hex"])

    def test_refused(self):
        self.assertGreaterEqual(len(VECTORS["refused"]), 100)
        for vector in VECTORS["refused"]:
            with self.subTest(vector["name"]):
                with self.assertRaises(orbit_digest.Refusal) as caught:
                    orbit_digest.digest("submitTask", "/v1/tasks", body_of(vector))
                self.assertEqual(caught.exception.code, vector["code"])


if __name__ == "__main__":
    unittest.main()
