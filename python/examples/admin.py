import sys

import nearflash

place = sys.argv[1] if len(sys.argv) > 1 else "/run/nearflash/nearflash.sock"

admin = nearflash.Admin(place)  # or "https://flash-1:7443", token="…"
admin.add_tenant({"name": "backup"})
for tenant in admin.list_tenants()["tenants"]:
    print(tenant["name"])
admin.remove_tenant("backup")
